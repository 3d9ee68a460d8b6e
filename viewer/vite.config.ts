import { resolve } from "node:path";
import { viteSingleFile } from "vite-plugin-singlefile";
import { defineConfig } from "vitest/config";

// The page is one file that ships inside the Python package. TOKENYARD_VIEWER_OUT builds it somewhere else, for work in
// progress and for comparing a fresh build with the committed one.
const output = process.env["TOKENYARD_VIEWER_OUT"] ?? resolve(__dirname, "../src/tokenyard/web/static");

const UNUSED = /^\.\/(?:variant|wkb|geoparquet)\.js$/;

/** Functions and what they do instead. */
const UNUSED_IN_UPLOT: Record<string, string> = {
  fmtDate: "",
  genTimeStuffs: "return [[], [], () => {}];",
  timeAxisStamps: "",
  timeAxisVals: "",
  timeAxisVal: "",
  timeSeriesStamp: "",
  timeSeriesVal: "",
  rangeLog: "",
  rangeAsinh: "",
  logAxisSplits: "",
  asinhAxisSplits: "",
  initLegendRow: "",
};

export default defineConfig({
  base: "./",
  plugins: [
    viteSingleFile(),
    // The development server loads modules one by one, which the page's own policy rightly forbids.
    {
      name: "open-for-development",
      apply: "serve",
      transformIndexHtml: (page) => page.replace(/<meta http-equiv=.*\n/, ""),
    },
    {
      name: "leave-out-what-no-trace-needs",
      enforce: "pre",
      resolveId: (name, importer) =>
        importer?.includes("/hyparquet/") && UNUSED.test(name) ? resolve(__dirname, "src/data/parquetUnused.ts") : null,
    },
    {
      name: "leave-out-what-no-plot-needs",
      transform: (code, id) => (id.endsWith("/uPlot.esm.js") ? { code: slimmed(code), map: null } : null),
    },
    { name: "call-it-viewer", enforce: "post", generateBundle: (_, bundle) => rename(bundle) },
  ],
  esbuild: { jsx: "automatic", jsxImportSource: "preact", legalComments: "none" },
  build: {
    outDir: output,
    emptyOutDir: false,
    target: "es2022",
    modulePreload: false,
    // Four kilobytes smaller than what esbuild makes of it.
    minify: "terser",
    terserOptions: { ecma: 2020, compress: { passes: 2 } },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 2_000,
    // Workers run the same script, as a classic one.
    rollupOptions: { output: { format: "iife" } },
  },
  // A machine that is busy otherwise takes its time.
  test: { testTimeout: 60_000, environment: "node", include: ["src/**/*.test.ts", "src/**/*.test.tsx"] },
});

/**
 * uPlot without what our plots never ask of it: dates, logarithms, its own legend, bars, splines and joins. All of it hangs
 * together with what is used, so that no bundler finds it; the functions are made empty, and what they used falls away.
 */
function slimmed(code: string): string {
  const [core, extras] = code.split("\nuPlot.assign = assign;\n");
  const ends = extras?.indexOf("\nexport {") ?? -1;
  if (ends < 0) throw new Error("vite.config.ts: this uPlot ends in another way: look at what can be left out of it");
  return Object.entries(UNUSED_IN_UPLOT).reduce((text, [name, body]) => {
    const parts = text.split(`function ${name}(`);
    if (parts.length !== 2) throw new Error(`vite.config.ts: this uPlot has no function ${name} to leave out`);
    return parts.join(`function ${name}() {${body}}\nfunction unused_${name}(`);
  }, core + extras.slice(ends));
}

function rename(bundle: Record<string, { fileName: string }>): void {
  const page = bundle["index.html"];
  if (page) page.fileName = "viewer.html";
}
