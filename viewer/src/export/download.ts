/** Hand a file to the browser's downloads. */
export function download(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = fileName(name);
  document.body.append(link);
  link.click();
  link.remove();
  // The download has to have begun before the address goes away.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

const LONGEST = 120;

/** A name that every file system takes, whatever the trace is called. */
export function fileName(text: string): string {
  const plain = text
    .normalize("NFKC")
    .replace(/[^\p{L}\p{N}._-]+/gu, "_")
    .replace(/^[._]+/, "");
  if (plain.length <= LONGEST) return plain || "trace";
  const ending = /(\.[\w.]{1,24})$/.exec(plain)?.[1] ?? "";
  return plain.slice(0, LONGEST - ending.length) + ending;
}
