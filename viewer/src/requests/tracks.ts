/** Turns of one job that overlap in time share the height of its lane. */

import type { RequestLife } from "../data/model/lives";

/** Beyond these the last track is shared: a lane is only so high. */
export const MOST_TRACKS = 4;

export interface Tracks {
  /** Track of each turn. */
  of: Uint8Array;
  count: number;
}

/** The first free track for each turn, in order of beginning. */
export function tracks(turns: readonly RequestLife[]): Tracks {
  const of = new Uint8Array(turns.length);
  const freeFrom: number[] = [];
  for (const index of turns.map((_, at) => at).sort((a, b) => begin(turns[a]) - begin(turns[b]) || a - b)) {
    const life = turns[index];
    let track = freeFrom.findIndex((row) => row <= begin(life));
    if (track < 0) track = freeFrom.length < MOST_TRACKS ? freeFrom.length : MOST_TRACKS - 1;
    of[index] = track;
    freeFrom[track] = Math.max(freeFrom[track] ?? 0, end(life));
  }
  return { of, count: Math.max(freeFrom.length, 1) };
}

function begin(life: RequestLife): number {
  return life.phases[0]?.first ?? 0;
}

/** The row after its last one: a turn that begins where another ended does not overlap it. */
function end(life: RequestLife): number {
  return life.phases.at(-1)?.last ?? 0;
}
