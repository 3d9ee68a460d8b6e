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
  /** The setting's value in this run; null if the trace does not tell. */
  now: unknown;
  /** What in this trace shows it. */
  evidence: string;
  /** Request-seconds lost to it; null if that is not what it costs. */
  lostSeconds: number | null;
}

/** Steps from which on a reason counts. */
export const LEAST_STEPS = Math.max(
  ...RULE_BOOK.conditions["noticeable"]
    .flat()
    .map((each) => (typeof each !== "string" && each.value === "reason.steps" ? (each.at_least ?? 1) : 1)),
);

/** What the rules advise, most time lost first; last what vLLM has not. */
export function advise(symptoms: Symptoms): Finding[] {
  return [...found(symptoms, true), ...found(symptoms, false)];
}

function found(symptoms: Symptoms, vllm: boolean): Finding[] {
  const findings = RULE_BOOK.rules.flatMap((rule): Finding[] => {
    if (rule.vllm !== vllm) return [];
    const reader = new RuleReader(RULE_BOOK, rule, symptoms);
    if (!reader.applies()) return [];
    const { symptom, diagnosis, setting, price, steps, reasons } = rule;
    const direction = rule.direction as Direction;
    return [
      {
        ...{ rule: rule.name, symptom, diagnosis, setting, direction, price, steps, reasons },
        ...{ now: settingOf(symptoms, setting), evidence: reader.evidence(), lostSeconds: reader.lost() },
      },
    ];
  });
  return findings.sort((a, b) => (b.lostSeconds ?? 0) - (a.lostSeconds ?? 0));
}
