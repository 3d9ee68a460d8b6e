/** The focus that a move to another view leaves behind: the view it is meant for takes it when it is there. */

let wished = "";

export function wishFocus(name: string): void {
  wished = name;
}

/** Whether the focus is wished here; it is taken with that. */
export function takeWish(name: string): boolean {
  const mine = wished === name;
  if (mine) wished = "";
  return mine;
}
