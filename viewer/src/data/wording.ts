/** What buckets and reasons mean, and which family each belongs to: from the vocabulary that the package shares. */

import {
  BUCKETS as BUCKET_TABLE,
  GAPS,
  GUESS,
  REASONS,
  STEP_REASONS as STEP_TABLE,
  UNKNOWN_REASON,
} from "../generated/vocabulary";
import { BUCKETS, type Bucket, type Reason, type ReasonFamily, type ShownReason, STEP_REASONS } from "./model/reasons";
import type { WaitingPlace } from "./model/waiting";

interface Entry {
  meaning: string;
  family: ReasonFamily;
}

/** Every name: a reason of the classifier belongs to the family of its bucket, and names it where both have a name. */
const ENTRIES = new Map<string, Entry>([
  ...Object.entries(BUCKET_TABLE),
  ...Object.entries(STEP_TABLE).map(([name, { meaning, bucket }]): [string, Entry] => [
    name,
    { meaning, family: BUCKET_TABLE[bucket].family },
  ]),
  ...Object.entries(GAPS),
  ...Object.entries(REASONS),
]);

/** What plug-ins alone say; the word that they have for it is part of the name here. */
export const POLICY: Reason = "policy_refused";

export function refusedWith(word: string): string {
  return `${POLICY}: ${word}`;
}

/** As the package knows it. */
export function codeOf(reason: string): string {
  return reason.startsWith(refusedWith("")) ? POLICY : reason;
}

export function familyOf(reason: string): ReasonFamily {
  return ENTRIES.get(codeOf(reason))?.family ?? "unknown";
}

/** One sentence on a bucket, a reason of the classifier, a recorded one or a gap between decisions. */
export function meaningOf(reason: string): string {
  return ENTRIES.get(codeOf(reason))?.meaning ?? UNKNOWN_REASON;
}

/** One sentence on what a request waited for. */
export function waitMeaning(reason: string, place: WaitingPlace): string {
  return place === "guess" ? GUESS.replace("{meaning}", meaningOf(reason)) : meaningOf(reason);
}

export function bucketMeaning(bucket: Bucket): string {
  return BUCKET_TABLE[bucket].meaning;
}

/** Does the bucket rightly stand for a recorded reason? */
export function agrees(bucket: Bucket, reason: string): boolean {
  const says: readonly string[] = BUCKET_TABLE[bucket].says;
  return says.includes(codeOf(reason));
}

/** Whether requests of this reason are held back; a reason that is not known holds. */
export function holds(reason: string): boolean {
  return Object.hasOwn(REASONS, reason) ? REASONS[reason as Reason].holds : true;
}

/** The reason of the whole pass whose number of requests counts those held back for `reason` as well. */
export function countedIn(reason: string): string | null {
  return Object.hasOwn(REASONS, reason) ? REASONS[reason as Reason].countedIn : null;
}

/** The table behind `steps.shown`: buckets of unblocked steps, the classifier's reasons, then recorded reasons. */
export function shownReasons(recorded: readonly string[]): ShownReason[] {
  const unblocked = BUCKETS.filter((name) => !BUCKET_TABLE[name].blocked).map((name) =>
    entry(name, false, false, bucketMeaning(name)),
  );
  const guessed = STEP_REASONS.filter((name) => name !== "unknown").map((name) =>
    entry(name, false, true, STEP_TABLE[name].meaning),
  );
  const room = 254 - unblocked.length - guessed.length;
  const named = recorded.slice(0, room).map((name) => entry(name, true, true, meaningOf(name)));
  return [...unblocked, ...guessed, ...named];
}

function entry(name: string, recorded: boolean, blocked: boolean, meaning: string): ShownReason {
  return { name, recorded, blocked, family: familyOf(name), meaning };
}

/** Index into `shownReasons` for each bucket (0 for those of blocked steps), each classifier's reason, each recorded one. */
export function shownIndices(table: readonly ShownReason[], recorded: readonly string[]) {
  const index = (name: string, isRecorded: boolean) =>
    table.findIndex((shown) => shown.name === name && shown.recorded === isRecorded);
  const unknown = index("unknown", false);
  const orUnknown = (found: number) => (found < 0 ? unknown : found);
  return {
    ofBucket: BUCKETS.map((name) => orUnknown(index(name, false))),
    ofReason: STEP_REASONS.map((name) => orUnknown(index(name, false))),
    ofRecorded: recorded.map((name) => orUnknown(index(name, true))),
  };
}

/** Where a tenant is named. */
export const TENANT_MEANING =
  "A tenant is a hash of its cache_salt: hashlib.blake2s(b'SALT', digest_size=8).hexdigest()";
