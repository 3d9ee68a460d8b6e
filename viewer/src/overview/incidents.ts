/** What else went wrong at another time: the verdict names the worst, and names these. */

import { blame as blameOf } from "../data/blame";
import { endOfRow } from "../data/lives";
import type { Range } from "../data/model/columns";
import type { Blame, Pressure, Stretch } from "../data/model/pressure";
import type { Statistics } from "../data/model/statistics";
import type { TraceStore } from "../data/model/trace";
import { mostHeld, ofRows, stretches as stretchesOf } from "../data/pressure";
import { spanOf, stretchBeside } from "../data/since";
import { selection } from "../state/store";
import type { Looked } from "./causes";
import { culpritOf, type Guilty, isQuiet, rowsOf } from "./words";

/** Beside the worst. */
const MOST = 2;
/** Of the worst one's loss, and of the requests that it held back at once: less is not worth a sentence on the first screen. */
const LOSS = 0.02;
const HELD = 0.1;

/** Stretches that are looked at. */
const WORST = 3;

/** The worst stretches, the worst first. `late`: that one is the worst for its first tokens, though more was waited elsewhere. */
export interface Worst {
  stretches: Stretch[];
  late: boolean;
}

/** In whole rows, of a range and, where that is a stretch of the run itself, as the run has it. */
export function worstIn(store: TraceStore, range: Range, found: Pressure | null, run: Pressure | null): Worst {
  const exact = (some: Pressure): Stretch[] => stretchesOf(some, WORST).map((stretch) => ofRows(store, some, stretch));
  const isRange = ({ first, last }: Range) => first === range.first && last === range.last;
  const late = run && latest(store, run, exact(run));
  const ofRun = run && run !== found ? [...(late ? [late] : []), ...exact(run)] : [];
  const chosen = ofRun.find((stretch) => isRange(rowsOf(store, stretch)));
  if (chosen || !found) return { stretches: chosen ? [chosen] : [], late: false };
  const all = exact(found);
  const own = run === found ? late : latest(store, found, all);
  const others = own ? all.filter(({ begin, end }) => end <= own.begin || begin >= own.end) : all;
  return { stretches: own ? [own, ...others].slice(0, WORST) : all, late: own !== null };
}

/** Of the requests: the slowest first tokens, which a p99 shows. */
const SLOWEST = 0.01;
/** Of their waiting: where it was, the trouble was. */
const MOSTLY = 0.5;
/** Times what any request waited for its first token where most was lost. */
const LATER = 1.5;

/** The stretch in which the slowest waited for their first tokens, if that is not the one in which most was lost. */
function latest(store: TraceStore, found: Pressure, [most]: readonly Stretch[]): Stretch | null {
  // While a trace is read that may change with every part of it.
  if (!most || store.stage === "reading") return null;
  const { arrivalTime, firstTokenTime } = store.requests;
  const until = found.from + found.slices * found.width;
  const taken = [spanOf(store, found, most)];
  const took = firstTokenTime.map((end, request) => {
    const begin = arrivalTime[request];
    return begin < until && end >= found.from ? end - begin : Number.NaN;
  });
  const sorted = took.filter((seconds) => seconds > 0).sort();
  const slow = Math.ceil(SLOWEST * sorted.length);
  if (slow === 0) return null;
  const tail = [...took.keys()].filter((request) => took[request] >= sorted[sorted.length - slow]);
  const shared = (request: number, { begun, over }: { begun: number; over: number }) =>
    Math.max(Math.min(firstTokenTime[request], over) - Math.max(arrivalTime[request], begun), 0);
  const within = (span: { begun: number; over: number }) =>
    tail.reduce((sum, request) => sum + shared(request, span), 0);
  const least = MOSTLY * tail.reduce((sum, request) => sum + took[request], 0);
  if (within(taken[0]) >= least) return null;
  const longest = took.reduce((one, seconds, at) => (seconds > one && shared(at, taken[0]) > 0 ? seconds : one), 0);
  if (sorted[sorted.length - 1 - (slow >> 1)] < LATER * longest) return null;
  while (taken.length <= MOST) {
    const stretch = stretchBeside(found, taken);
    if (!stretch) return null;
    const span = spanOf(store, found, stretch);
    if (within(span) >= least) return ofRows(store, found, stretch);
    taken.push(span);
  }
  return null;
}

export interface Incident {
  stretch: Stretch;
  begun: number;
  over: number;
}

/** From when to when it was, of an incident of the run what lies in the selection. */
export function spanWithin(store: TraceStore, run: Pressure, stretch: Stretch) {
  const { begun, over } = spanOf(store, run, stretch);
  const chosen = selection.value;
  if (!chosen) return { begun, over };
  return { begun: Math.max(begun, store.steps.ts[chosen.first]), over: Math.min(over, endOfRow(store, chosen.last)) };
}

/** Other times at which much was lost, the worst first. */
export function otherIncidents(
  store: TraceStore,
  { found, run }: Looked,
  worst: Stretch,
  statistics: Statistics | null,
): Incident[] {
  const taken = [{ stretch: worst, ...spanWithin(store, run, worst) }];
  while (taken.length <= MOST) {
    const stretch = stretchBeside(found, taken);
    const little = !stretch || stretch.lost < LOSS * worst.lost || stretch.most < HELD * worst.most;
    if (little || isQuiet([stretch], statistics)) break;
    taken.push({ stretch, ...spanWithin(store, run, stretch) });
  }
  return taken.slice(1);
}

export interface OtherIncident extends Incident {
  /** Most requests that it held back at once. */
  most: number;
  blame: Blame;
  guilty: Guilty | null;
}

/** With those that held others back then. */
export async function blamedIncidents(
  store: TraceStore,
  incidents: readonly Incident[],
  signal: AbortSignal,
): Promise<OtherIncident[]> {
  const found: OtherIncident[] = [];
  for (const incident of incidents) {
    const blame = await blameOf(store, rowsOf(store, incident.stretch), signal);
    const { stretch, begun, over } = incident;
    const most = mostHeld(store, rowsOf(store, { begin: begun, end: over }), stretch.shown);
    found.push({ ...incident, most, blame, guilty: culpritOf(store, stretch, blame) });
  }
  return found;
}

/** The first; of the others those of another reason, or by others, than the ones before and the worst. */
export function worthSaying(
  incidents: readonly OtherIncident[],
  worst: Stretch,
  guilty: Guilty | null,
): OtherIncident[] {
  const key = ({ shown }: Stretch, who: Guilty | null) => `${shown} ${who?.who.filter} ${who?.who.request}`;
  const seen = new Set([key(worst, guilty)]);
  return incidents.filter(({ stretch, guilty: own }, at) => {
    const known = seen.has(key(stretch, own));
    seen.add(key(stretch, own));
    return at === 0 || !known;
  });
}
