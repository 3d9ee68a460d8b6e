/** Foreign text, made fit to be shown: it comes from prompts and clients, so it may be anything. */

/** Marks that turn a line round, controls, and halves of characters: they are shown as what they are, a blot. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: controls are what it looks for
const STEERING = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

export function plain(text: string): string {
  return text.replace(STEERING, "\ufffd");
}

/** JSON with every such mark but the line feeds escaped: copied from the page it is still JSON. */
export function plainJson(json: string): string {
  return json.replace(STEERING, (mark) =>
    mark === "\n" ? mark : `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** At most `most` characters, the middle left out: the ends of an id distinguish it from others. */
export function middle(text: string, most = 40): string {
  const shown = plain(text.length > 4 * most ? text.slice(0, 2 * most) + text.slice(-2 * most) : text);
  if (shown.length <= most) return shown;
  const head = Math.ceil((most - 1) / 2);
  return `${shown.slice(0, head)}…${shown.slice(shown.length - (most - 1 - head))}`;
}

/** A long text cut, with a note of how much there was. */
export function cut(text: string, most = 2_000): string {
  if (text.length <= most) return plain(text);
  return `${plain(text.slice(0, most))}… (cut: ${text.length.toLocaleString("en-US")} characters)`;
}
