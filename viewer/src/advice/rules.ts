/** What the rules advise for the symptoms of a range of steps. */

import { RULE_BOOK } from "../generated/advice";
import type { Direction } from "./rule";
import { RuleReader } from "./ruleReader";
import { type Symptoms, settingOf } from "./symptoms";

/** One piece of advice. */
export interface Finding {
  rule: string;
  symptom: string;
  diagnosis: string;
  setting: string;
  direction: Direction;
  /** Those that it looks at. */
  reasons: readonly string[];
  /** What the change costs. */
  price: string;
  /** Filter text for the steps that show it; empty where no step stands out. */
  steps: string;
  /** The setting's value in this run; null if the trace does not record it. */
  now: unknown;
  /** What to set it to, or to begin with; null if the trace does not record it. */
  to: string | null;
  /** What in this trace shows it. */
  evidence: string;
  /** Of it how the value to set follows; empty where none does. */
  basis: string;
  /** Request-seconds lost to it; null if that is not what it costs. */
  lostSeconds: number | null;
}

/** Steps from which on a reason counts. */
export const LEAST_STEPS = Math.max(
  ...RULE_BOOK.conditions["noticeable"]
    .flat()
    .map((each) => (typeof each !== "string" && each.value === "reason.steps" ? (each.at_least ?? 1) : 1)),
);

/** vLLM has what it would set. */
export function isOfVllm({ rule }: Pick<Finding, "rule">): boolean {
  return RULE_BOOK.rules.find(({ name }) => name === rule)?.vllm ?? true;
}

/** It is about a bound that is missed. */
export function isOfBound({ rule }: Pick<Finding, "rule">): boolean {
  return RULE_BOOK.rules.find(({ name }) => name === rule)?.of_bound !== undefined;
}

/** The run of which the symptoms are a part, and what is advised for it. */
export interface Whole {
  symptoms: Symptoms;
  advice: readonly Finding[];
}

/**
 * What the rules advise: first what a missed bound wants, then most time lost first; last what vLLM has not. For a part of a run nothing that turns the advice for
 * the whole around.
 */
export function advise(symptoms: Symptoms, whole: Whole | null = null): Finding[] {
  const turned = ({ setting, direction }: Finding) =>
    whole?.advice.some((other) => other.setting === setting && OPPOSITE[other.direction] === direction);
  return [...found(symptoms, true, whole), ...found(symptoms, false, whole)].filter((finding) => !turned(finding));
}

const OPPOSITE: Partial<Record<Direction, Direction>> = { up: "down", down: "up", on: "off", off: "on" };

function found(symptoms: Symptoms, vllm: boolean, whole: Whole | null): Finding[] {
  const findings = RULE_BOOK.rules.flatMap((rule): Finding[] => {
    if (rule.vllm !== vllm) return [];
    const reader = new RuleReader(RULE_BOOK, rule, symptoms, whole?.symptoms);
    if (!reader.applies()) return [];
    const { symptom, diagnosis, setting, price, steps, reasons } = rule;
    const direction = rule.direction as Direction;
    return [
      {
        ...{ rule: rule.name, symptom, diagnosis, setting, direction, price, steps, reasons },
        ...{ now: settingOf(symptoms, setting), to: textOf(reader.target()) },
        ...{ evidence: reader.evidence(), basis: reader.basis(), lostSeconds: reader.lost() },
      },
    ];
  });
  return findings.sort(
    (a, b) => Number(isOfBound(b)) - Number(isOfBound(a)) || (b.lostSeconds ?? 0) - (a.lostSeconds ?? 0),
  );
}

function textOf(value: number | string | null): string | null {
  return value === null ? null : String(value);
}
