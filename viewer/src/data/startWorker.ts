/** A worker from the page's own script, which stands in the page: no second file, and no second copy of the code. */

let address: string | null = null;

export function startWorker(): Worker {
  // The development server serves modules one by one.
  if (import.meta.env.DEV) return new Worker("/src/entry.ts", { type: "module" });
  if (address === null) {
    const code = document.querySelector('script[type="module"]')?.textContent ?? "";
    address = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  }
  return new Worker(address);
}
