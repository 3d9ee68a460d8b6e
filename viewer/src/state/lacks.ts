/** What the server cannot do because a package is not installed, and why: requested once, of a server that gave a trace. */

import { signal } from "@preact/signals";

export const lacks = signal<Readonly<Record<string, string>>>({});
let asked = false;

export async function askWhatLacks(): Promise<void> {
  if (asked) return;
  asked = true;
  try {
    const answer = await fetch("/api/lacks");
    const found: unknown = answer.ok ? await answer.json() : {};
    if (found && typeof found === "object") {
      lacks.value = Object.fromEntries(Object.entries(found).map(([what, why]) => [what, String(why)]));
    }
  } catch {
    // What fails says so itself.
  }
}
