import { resolve } from "node:path";
import { viteSingleFile } from "vite-plugin-singlefile";
import { defineConfig } from "vitest/config";

// The page is one file that ships inside the Python package. TOKENYARD_VIEWER_OUT builds it somewhere else, for work in
// progress and for comparing a fresh build with the committed one.
const output = process.env["TOKENYARD_VIEWER_OUT"] ?? resolve(__dirname, "../src/tokenyard/server/static");

export default defineConfig({
  base: "./",
  plugins: [
    viteSingleFile({ removeViteModuleLoader: true }),
    // The development server loads modules one by one, which the page's own policy rightly forbids.
    {
      name: "open-for-development",
      apply: "serve",
      transformIndexHtml: (page) => page.replace(/<meta http-equiv=.*\n/, ""),
    },
    { name: "call-it-viewer", enforce: "post", generateBundle: (_, bundle) => rename(bundle) },
  ],
  esbuild: { jsx: "automatic", jsxImportSource: "preact", legalComments: "none" },
  worker: { format: "iife" },
  build: {
    outDir: output,
    emptyOutDir: false,
    target: "es2022",
    modulePreload: false,
    reportCompressedSize: false,
    chunkSizeWarningLimit: 2_000,
  },
  test: { environment: "node", include: ["src/**/*.test.ts", "src/**/*.test.tsx"] },
});

function rename(bundle: Record<string, { fileName: string }>): void {
  const page = bundle["index.html"];
  if (page) page.fileName = "viewer.html";
}
