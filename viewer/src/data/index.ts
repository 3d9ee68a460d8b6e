/** The door to the data of traces: what `Data` in model/contract.ts promises. */

import { badges } from "./badges";
import { compare } from "./compare";
import { details, rawStep } from "./details";
import { detect, listings } from "./detect";
import { embedded } from "./embedded";
import { exportCsv, exportJsonl } from "./exports";
import { header } from "./header";
import { levelsOfDetail } from "./levels";
import { lanes, life } from "./lives";
import { failure } from "./loadError";
import { follower, load } from "./loading";
import type { Row } from "./model/columns";
import type { Data } from "./model/contract";
import type { TraceStore } from "./model/trace";
import { overTime } from "./overTime";
import { pills, recordOf } from "./pills";
import { placeInQueue, requestFigures } from "./requestTable";
import { shares } from "./shares";
import { goodput, isBounded, meets } from "./slo";
import { statistics } from "./statistics";
import { rowAtTime, rowOfStep } from "./store";
import { outcome, recorded, verdict } from "./verdict";
import { waitingSplit } from "./waiting";

export { served } from "./detect";
export { EMBEDDED_ID } from "./embedded";
export { isAtStepLimit } from "./partial";
export { differenceAt } from "./parting";
export { requestOf } from "./store";
export { familyOf, meaningOf } from "./wording";

/** Next row, in a direction, that is shown as the same reason; -1 if there is none. */
function nextWithReason(store: TraceStore, row: Row, direction: 1 | -1): Row {
  const { shown } = store.steps;
  for (let next = row + direction; next >= 0 && next < store.rows; next += direction) {
    if (shown[next] === shown[row]) return next;
  }
  return -1;
}

export const data = {
  detect,
  load,
  follower,
  failure,
  embedded,
  listings,
  rowOfStep,
  rowAtTime,
  verdict,
  outcome,
  recorded,
  pills,
  badges,
  nextWithReason,
  recordOf,
  details,
  rawStep,
  header,
  statistics,
  levelsOfDetail,
  lanes,
  overTime,
  goodput,
  isBounded,
  meets,
  placeInQueue,
  requestFigures,
  shares,
  life,
  waitingSplit,
  compare,
  exportJsonl,
  exportCsv,
} satisfies Data;

export {
  badges,
  compare,
  details,
  detect,
  embedded,
  exportCsv,
  exportJsonl,
  failure,
  follower,
  goodput,
  header,
  isBounded,
  lanes,
  levelsOfDetail,
  life,
  listings,
  load,
  meets,
  nextWithReason,
  outcome,
  overTime,
  pills,
  placeInQueue,
  rawStep,
  recorded,
  recordOf,
  requestFigures,
  rowAtTime,
  rowOfStep,
  shares,
  statistics,
  verdict,
  waitingSplit,
};
