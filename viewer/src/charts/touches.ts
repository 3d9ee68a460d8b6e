/** Whether fingers point at this page: what they are to meet is made 32 pixels tall. */
export function touches(): boolean {
  return typeof matchMedia === "function" && matchMedia("(pointer: coarse)").matches;
}
