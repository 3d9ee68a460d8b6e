/** The settings of two runs, from their headers: those that are not the same. */

import type { SettingDifference } from "./model/comparison";
import type { TraceStart } from "./model/trace";

/** What stands in a header beside the configuration and says how the run was made. */
const FIELDS = {
  policy: "policy",
  model: "model",
  gpu: "gpu",
  blockSize: "block_size",
  bytesPerBlock: "bytes_per_block",
  everyN: "every_n",
  warmup: "warmup",
  maxSteps: "max_steps",
  maxIdsPerStep: "max_ids_per_step",
  tokenyardVersion: "tokenyard_version",
} as const satisfies Partial<Record<keyof TraceStart, string>>;

/** The configuration's, then the others; null if one of the two has no header. */
export function settingsDifference(a: TraceStart | null, b: TraceStart | null): SettingDifference[] | null {
  if (!a || !b) return null;
  // A header without a configuration tells nothing about it: that is no difference.
  const told = a.config !== null && b.config !== null;
  const configured = told ? differences(configOf(a), configOf(b)) : [];
  const twice = ({ name, a: inA, b: inB }: SettingDifference) =>
    configured.some((each) => each.name.endsWith(`.${name}`) && each.a === inA && each.b === inB);
  return [...configured, ...differences(fieldsOf(a), fieldsOf(b)).filter((each) => !twice(each))];
}

function differences(a: Map<string, string>, b: Map<string, string>): SettingDifference[] {
  return [...new Set([...a.keys(), ...b.keys()])]
    .map((name) => ({ name, a: a.get(name) ?? null, b: b.get(name) ?? null }))
    .filter((setting) => setting.a !== setting.b);
}

function fieldsOf(start: TraceStart): Map<string, string> {
  const named = Object.entries(FIELDS).map(([field, name]) => [name, start[field as keyof typeof FIELDS]] as const);
  return new Map(
    named.flatMap(([name, value]) => (value === null || value === undefined ? [] : [[name, textOf(value)]])),
  );
}

function configOf({ config }: TraceStart): Map<string, string> {
  const found = new Map<string, string>();
  flatten(config, "", found);
  return found;
}

/** `section.setting` for each value that is no section; lists as a whole. */
function flatten(value: unknown, path: string, into: Map<string, string>): void {
  if (isText(value)) return;
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    if (path !== "") into.set(path, textOf(value));
    return;
  }
  for (const [name, part] of Object.entries(value)) flatten(part, path === "" ? name : `${path}.${name}`, into);
}

/** What a deployment says in sentences, such as the flags it was given: its values stand elsewhere, as in Python. */
function isText(value: unknown): boolean {
  return Array.isArray(value) && value.some((each) => typeof each === "string" || (each && typeof each === "object"));
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}
