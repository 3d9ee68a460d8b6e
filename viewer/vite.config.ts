import { resolve } from "node:path";
import { viteSingleFile } from "vite-plugin-singlefile";
import { defineConfig } from "vitest/config";

// The page is one file that ships inside the Python package. TOKENYARD_VIEWER_OUT builds it somewhere else, for work in
// progress and for comparing a fresh build with the committed one.
const output = process.env["TOKENYARD_VIEWER_OUT"] ?? resolve(__dirname, "../src/tokenyard/web/static");

const UNUSED = /^\.\/(?:variant|wkb|geoparquet)\.js$/;

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
    { name: "call-it-viewer", enforce: "post", generateBundle: (_, bundle) => rename(bundle) },
  ],
  esbuild: { jsx: "automatic", jsxImportSource: "preact", legalComments: "none" },
  build: {
    outDir: output,
    emptyOutDir: false,
    target: "es2022",
    modulePreload: false,
    // Four kilobytes smaller than what esbuild makes of it, packed: the options make it longer, and more like itself.
    minify: "terser",
    terserOptions: {
      ecma: 2020,
      compress: { passes: 2, reduce_funcs: false, sequences: false, hoist_funs: true },
    },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 2_000,
    // Workers run the same script, as a classic one.
    rollupOptions: { output: { format: "iife" } },
  },
  // A machine that is busy otherwise takes its time. The files of one thread share its modules, which costs a quarter: a test
  // that changes the page's state puts it back.
  test: {
    testTimeout: 60_000,
    environment: "node",
    include: ["src/**/*.test.ts", "src/**/*.test.tsx"],
    pool: "threads",
    isolate: false,
  },
});

function rename(bundle: Record<string, { fileName: string }>): void {
  const page = bundle["index.html"];
  if (page) page.fileName = "viewer.html";
}
