/** What else went wrong at another time: the verdict tells the worst, and names these. */

import { blame as blameOf } from "../data/blame";
import type { Blame, Pressure, Stretch } from "../data/model/pressure";
import type { Statistics } from "../data/model/statistics";
import type { TraceStore } from "../data/model/trace";
import { spanOf, stretchBeside } from "../data/since";
import { culpritOf, type Guilty, isQuiet, rowsOf } from "./words";

/** Beside the worst. */
const MOST = 2;
/** Of the worst one's loss, and of the requests that it held back at once: less is not worth a sentence on the first screen. */
const LOSS = 0.02;
const HELD = 0.1;

export interface Incident {
  stretch: Stretch;
  begun: number;
  over: number;
}

/** Other times at which much was lost, the worst first. `run`: of the whole, `found`: of what is looked at. */
export function otherIncidents(
  store: TraceStore,
  found: Pressure,
  run: Pressure,
  worst: Stretch,
  statistics: Statistics | null,
): Incident[] {
  const taken = [{ stretch: worst, ...spanOf(store, run, worst) }];
  while (taken.length <= MOST) {
    const stretch = stretchBeside(found, taken);
    const little = !stretch || stretch.lost < LOSS * worst.lost || stretch.most < HELD * worst.most;
    if (little || isQuiet([stretch], statistics)) break;
    taken.push({ stretch, ...spanOf(store, run, stretch) });
  }
  return taken.slice(1);
}

export interface OtherIncident extends Incident {
  blame: Blame;
  guilty: Guilty | null;
}

/** With those who held others back then. */
export async function blamedIncidents(
  store: TraceStore,
  incidents: readonly Incident[],
  signal: AbortSignal,
): Promise<OtherIncident[]> {
  const found: OtherIncident[] = [];
  for (const incident of incidents) {
    const blame = await blameOf(store, rowsOf(store, incident.stretch), signal);
    found.push({ ...incident, blame, guilty: culpritOf(store, incident.stretch, blame) });
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
