/** Whether fingers point at this page: what they are to meet is made 32 pixels tall. */
export function touches(): boolean {
  return typeof matchMedia === "function" && matchMedia("(pointer: coarse)").matches;
}

/** Whether the page is a phone's. */
export function isNarrow(): boolean {
  return typeof innerWidth === "number" && innerWidth <= 700;
}
