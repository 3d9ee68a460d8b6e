/** Texts as numbers: each distinct one is kept once. */
export class Names {
  readonly texts: string[] = [];
  private readonly indices = new Map<string, number>();

  constructor(texts: readonly string[] = []) {
    for (const text of texts) this.index(text);
  }

  /** The number of `text`, new ones counted on. */
  index(text: string): number {
    let index = this.indices.get(text);
    if (index === undefined) {
      index = this.texts.length;
      this.indices.set(text, index);
      this.texts.push(text);
    }
    return index;
  }

  /** The number of `text`, or -1. */
  find(text: string): number {
    return this.indices.get(text) ?? -1;
  }
}
