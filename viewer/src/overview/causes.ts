/** What would help where few requests took most of the tokens: to limit those, to let them wait, to take them in small pieces. */

import { type Finding, isOfBound, isOfVllm } from "../advice/rules";
import { blame } from "../data/blame";
import { momentText } from "../data/clock";
import { shortId } from "../data/labels";
import { MISSING, type Range, type RequestIndex } from "../data/model/columns";
import type { Blame, BlamedGroup, Pressure, Stretch } from "../data/model/pressure";
import type { TraceStore } from "../data/model/trace";
import { incidentOf, pressureOfRange, pressureOfRun } from "../data/since";
import { traits } from "../data/takers";
import { codeOf } from "../data/wording";
import { count, plural } from "../format";
import { type Added, added } from "../statistics/useStatistics";
import { culpritOf, type Guilty, isQuiet, priorities, rowsOf } from "./words";

/** Of a step's tokens one long prompt may get: so many of them at once leave nothing to others. */
const PIECES = 8;
/** Of what is left beside the others: an engine that has nothing to spare is behind at the next chance. */
const SPENT = 0.9;
/** Of the slices: fewer outside the trouble tell nothing about what is usual. */
const USUAL = 0.1;
/** Of a group's requests: it comes with the trouble, and is not there otherwise. */
const MOSTLY = 0.9;

/** What to change, of a range alone: the same ideas in the same order wherever they stand. */
export async function ideasIn(
  store: TraceStore,
  range: Range,
  { found, advice }: Added,
  stretches: readonly Stretch[],
  signal: AbortSignal,
): Promise<Finding[]> {
  const [worst] = stretches;
  const quiet = isQuiet(stretches, found);
  const main = codeOf(store.shown[worst?.shown]?.name ?? "");
  // What costs little of the whole run may be all that a bad minute suffered from.
  const about = (finding: Finding) => finding.reasons.includes(main);
  const unanswered = worst && !quiet && !advice.some(about);
  const ofWorst = unanswered ? (await added(store, rowsOf(store, worst), signal)).advice.filter(about) : [];
  const causes = worst && !quiet ? await causesIn(store, range, worst, signal) : [];
  return withCauses(causes, ranked([...ofWorst, ...advice], main));
}

/** Of what of an incident lies in the range. First what costs least; nothing if none stands out, or if those that do are not few. */
async function causesIn(store: TraceStore, range: Range, worst: Stretch, signal: AbortSignal): Promise<Finding[]> {
  const found = await pressureOfRange(store, range);
  const run = await pressureOfRun(store, range);
  const incident = found && incidentOf(found, worst.shown, worst);
  if (!run || !incident) return [];
  const [begin, end] = [found.from + incident.first * found.width, found.from + (incident.last + 1) * found.width];
  const blamed = await blame(store, rowsOf(store, { begin, end }), signal);
  return causesOf(store, { found, run }, { ...worst, ...incident, begin, end }, blamed);
}

/** Of what is looked at, and of the whole run, which shows what is usual. */
export interface Looked {
  found: Pressure;
  run: Pressure;
}

function causesOf(store: TraceStore, looked: Looked, worst: Stretch, blamed: Blame): Finding[] {
  const guilty = culpritOf(store, worst, blamed);
  if (!guilty) return [];
  const { group, who } = guilty;
  const ahead = priorities(store, blamed.victims, group);
  if (!guilty.couldWait && !(ahead && group)) return [];
  const row = Math.max(store.rows - 1, 0);
  const budget = store.steps.tokenBudget[row];
  const each = group ? group.asked.promptTokens / group.asked.prompts : store.requests.promptTokens[who.request];
  const long = budget > 0 && each > budget;
  const name = store.shown[worst.shown].name;
  const common = {
    symptom: long ? `requests wait behind ${group ? "long prompts" : "a long prompt"}` : "requests wait behind others",
    diagnosis: `${who.words} ${guilty.had.replace(" its ", " the ")} from ${momentText(store, worst.begin)} to ${momentText(store, worst.end)}`,
    ...{ reasons: [name], steps: `reason:${name}`, basis: "" },
    // What each of them would spare: those that held others back are the same.
    lostSeconds: group ? group.seconds : null,
  };
  if (ahead && group) return [sameTurn(group, ahead, common)];
  const findings: Finding[] = [];
  if (group) {
    const { to, now, evidence } = ratesOf(store, looked, worst, group);
    const basis = to === null ? "" : evidence;
    findings.push({
      ...{ ...common, rule: "limit-them", setting: groupName(group), direction: "limit", to, now, evidence },
      price: "theirs are refused or kept outside; vLLM has no such limit, a gateway or the client has",
      basis,
    });
  }
  findings.push(later(store, guilty, common));
  const threshold = 16 * Math.max(Math.floor(budget / PIECES / 16), 1);
  const set = thresholdOf(store);
  if (long && !(set > 0 && set <= threshold)) {
    findings.push({
      ...{ ...common, rule: "small-pieces", setting: "long_prefill_token_threshold", direction: "set" },
      ...{ to: count(threshold), now: Number.isNaN(set) ? null : set },
      evidence: `One of their prompts takes up to ${count(budget)} tokens of a step now, and at most ${count(threshold)} then.`,
      price: `theirs take more steps to their first token; ${PIECES} of them at once leave nothing to others, as now`,
    });
  }
  return findings;
}

const CAUSES: ReadonlySet<string> = new Set(["limit-them", "let-them-wait", "small-pieces", "same-turn"]);

/** It is about those that held others back, not about a limit. */
export function isCause({ rule }: Finding): boolean {
  return CAUSES.has(rule);
}

/**
 * What a missed bound wants first, then what is about `reason`, then by the time lost to it; what vLLM has not last, however
 * much is lost: beside a setting that mends it a policy of another scheduler is no advice.
 */
export function ranked(findings: readonly Finding[], reason: string): Finding[] {
  const about = ({ reasons }: Finding) => Number(reasons.includes(reason));
  return [...findings].sort(
    (a, b) =>
      Number(isOfVllm(b)) - Number(isOfVllm(a)) ||
      Number(isOfBound(b)) - Number(isOfBound(a)) ||
      about(b) - about(a) ||
      (b.lostSeconds ?? 0) - (a.lostSeconds ?? 0),
  );
}

/** These before the rules, and each setting once: at least half of what the rules look at is theirs. */
function withCauses(causes: readonly Finding[], rules: readonly Finding[]): Finding[] {
  return [...causes, ...rules.filter(({ setting }) => !causes.some((cause) => cause.setting === setting))];
}

type Common = Pick<Finding, "symptom" | "diagnosis" | "reasons" | "steps" | "basis" | "lostSeconds">;

function later({ policy }: TraceStore, { group }: Guilty, common: Common): Finding {
  const them = group && group.requests > 1 ? "them" : "it";
  return {
    ...{ ...common, rule: "let-them-wait", setting: "scheduling_policy", direction: "set" },
    ...{ to: `priority, with a later priority for ${them}`, now: shortId(policy, 40) },
    evidence: "Requests with a smaller number in the field priority are admitted before them then.",
    price: `${them === "it" ? "it waits" : "they wait"} as long as others come`,
  };
}

/** They came first by their priority. */
function sameTurn(group: BlamedGroup, [own, theirs]: [number, number], common: Common): Finding {
  return {
    ...{ ...common, rule: "same-turn", symptom: "others wait behind requests of a better priority" },
    ...{ setting: `priority of ${groupName(group)}`, direction: "set", to: `${theirs} or more`, now: own },
    evidence: `Smaller numbers are admitted first: theirs is ${own}, that of most who waited ${theirs}.`,
    price: "they wait as the others do",
  };
}

function groupName({ key, name }: BlamedGroup): string {
  const short = shortId(name, 30);
  if (key === "prompt" || key === "output") {
    return `${key === "prompt" ? "prompts" : "answers"} of ${count(Number(name))} tokens or more`;
  }
  return key === "req" ? `requests named ${short}` : `${key === "lora" ? "adapter" : key} ${short}`;
}

/** What they brought, and what the engine had left beside what else comes. */
function ratesOf(
  store: TraceStore,
  { found, run }: Looked,
  worst: Stretch,
  group: BlamedGroup,
): Pick<Finding, "to" | "now" | "evidence"> {
  const { first, last, begin, end } = worst;
  const { requests } = store;
  const members: RequestIndex[] = [];
  for (let request = 0; request < requests.count; request++) {
    const has = traits(store, request).some(([key, name]) => key === group.key && name === group.name);
    if (has && !Number.isNaN(requests.arrivalTime[request]) && requests.promptTokens[request] !== MISSING) {
      members.push(request);
    }
  }
  const came = (from: number, to: number) =>
    members.filter((request) => requests.arrivalTime[request] >= from && requests.arrivalTime[request] <= to);
  const here = came(found.from, found.from + found.slices * found.width);
  const arrivals = here.map((request) => requests.arrivalTime[request]).sort((a, b) => a - b);
  const seconds = arrivals[arrivals.length - 1] - arrivals[0];
  const brought = here.reduce((sum, request) => sum + requests.promptTokens[request], 0) / seconds;
  const mean = (some: number[]) => some.reduce((sum, rate) => sum + rate, 0) / some.length;
  const could = mean([...found.tokensPerSecond].slice(first, last + 1));
  // What is usual is shown by the run outside of the whole incident.
  const whole = incidentOf(run, worst.shown, { begin: (begin + end) / 2 }) ?? { first: 0, last: run.slices };
  const outside = [...run.tokensPerSecond].filter((_, slice) => slice < whole.first || slice > whole.last);
  const within = came(run.from + (whole.first - 1) * run.width, run.from + (whole.last + 1) * run.width);
  const usual =
    outside.length >= USUAL * run.slices && within.length >= MOSTLY * members.length ? mean(outside) : Number.NaN;
  const left = rounded(SPENT * (could - usual));
  const evidence = [
    here.length > 1 && Number.isFinite(brought)
      ? `${plural(here.length, "request")} of theirs brought ${count(rounded(brought))} prompt tokens a second`
      : `${plural(group.requests, "request")} of theirs took part`,
    ...(left > 0
      ? [
          `the engine computed ${count(rounded(could))} tokens a second then, and outside of it the others need ${count(rounded(usual))}; ${count(100 * SPENT)} % of what is left are for them`,
        ]
      : []),
  ];
  const known = left > 0 && left < brought;
  return {
    evidence: `${evidence.join("; ")}.`,
    to: known ? `about ${count(left)} prompt tokens a second` : null,
    now: known ? count(rounded(brought)) : null,
  };
}

/** To two digits, downwards. */
function rounded(value: number): number {
  if (!(value > 0)) return 0;
  const unit = 10 ** Math.max(Math.floor(Math.log10(value)) - 1, 0);
  return Math.floor(value / unit) * unit;
}

/** NaN if the trace does not record it. */
function thresholdOf({ start }: TraceStore): number {
  const config = start?.config as { scheduler?: Record<string, unknown> } | null | undefined;
  const value = config?.scheduler?.["long_prefill_token_threshold"];
  return typeof value === "number" ? value : Number.NaN;
}
