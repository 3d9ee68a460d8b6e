/** What kind of requests some are, and when they were sent. */

import { momentText } from "../data/clock";
import { endOfRow } from "../data/lives";
import type { Asked, BlamedGroup, Burst } from "../data/model/pressure";
import type { TraceStore } from "../data/model/trace";
import { count, fixed, percent, shortCount } from "../format";
import { selection } from "../state/store";

/** Of the tokens of the prompts: fewer images are not worth a word. */
const WORTH_SAYING = 0.1;
/** Of the run: who comes for longer is always there. */
const FOR_A_WHILE = 0.5;

/**
 * ` (prompts of about 11K tokens, 99.1 % of them images or clips: 4.5 each; answers of about 35)`; "" if the trace does not record it.
 * The trace does not distinguish images from clips and videos.
 */
export function kindWords({ prompts, promptTokens, answers, outputTokens, items, itemTokens }: Asked): string {
  if (!(promptTokens > 0)) return "";
  const [prompt, answer] = prompts === 1 ? ["a prompt of", "an answer of"] : ["prompts of about", "answers of about"];
  const share = itemTokens / promptTokens;
  const each = items / prompts;
  const images =
    share >= WORTH_SAYING
      ? `, ${percent(share)} of them images or clips: ${Number.isInteger(each) ? count(each) : fixed(each, 1)}${prompts === 1 ? "" : " each"}`
      : "";
  const more = answers > 0 ? `${images ? ";" : ","} ${answer} ${shortCount(outputTokens / answers)}` : "";
  return ` (${prompt} ${shortCount(promptTokens / prompts)} tokens${images}${more})`;
}

/** Beside figures of a selection, what is of the run says so. */
export function ofTheRun(): string {
  return selection.value ? " of the run" : "";
}

/**
 * `; all 37 were sent from 2:41 to 3:50`: the cause comes before those that wait. Of those that always come, when most of them did;
 * "" if they come evenly.
 */
export function sentWords(
  store: TraceStore,
  sent: Pick<BlamedGroup, "all" | "from" | "to"> & { burst?: Burst | null },
): string {
  const all = count(sent.all) + ofTheRun();
  if (cameForAWhile(store, sent)) {
    const when = whenWords(store, sent.from, sent.to);
    return sent.all === 1 ? `; it was sent ${when}` : `; all ${all} were sent ${when}`;
  }
  const { burst } = sent;
  return burst ? `; ${count(burst.requests)} of the ${all} were sent ${whenWords(store, burst.from, burst.to)}` : "";
}

/** They did not come all through the run. */
export function cameForAWhile(store: TraceStore, { from, to }: Pick<BlamedGroup, "from" | "to">): boolean {
  const { rows, steps } = store;
  const run = rows > 0 ? endOfRow(store, rows - 1) - steps.ts[0] : 0;
  return to - from <= FOR_A_WHILE * run;
}

/** `from 3:32 to 5:10`. */
export function whenWords(store: TraceStore, from: number, to: number): string {
  const [begin, end] = [momentText(store, from), momentText(store, to)];
  return begin === end ? `at ${begin}` : `from ${begin} to ${end}`;
}
