/** A rule of advice, as src/tokenyard/explain/advice/rules.toml holds it and says how to read it. */

export type Direction = "up" | "down" | "on" | "off" | "set" | "choose" | "limit";

/** One value against a number, another value, or true and false. */
export interface Comparison {
  value: string;
  at_least?: number;
  above?: number;
  below?: number;
  times?: string;
  is?: boolean;
  is_not?: boolean;
}

/** A comparison, or the name of a condition, after `not ` turned around. */
export type Condition = string | Comparison;

export type Sentence = readonly (string | { text: string; when: readonly Condition[] })[];

/** What to set a setting to. */
export interface Target {
  value: string;
  at_most?: string;
  /** A number, or the name of another value. */
  times?: number | string;
  /** What there is already, where that is not the setting's value. */
  above?: string;
  /** Around the number, where the setting takes another one: `what gives {} KV blocks`. */
  words?: string;
}

export interface Rule {
  name: string;
  symptom: string;
  diagnosis: string;
  setting: string;
  direction: string;
  /** What the change costs. */
  price: string;
  /** vLLM has such a setting. */
  vllm: boolean;
  /** Filter text for the steps that show it; empty where no step stands out. */
  steps: string;
  reasons: readonly string[];
  when: readonly Condition[];
  did: Sentence;
  evidence: Sentence;
  then: Sentence;
  target?: Target;
  lost_share?: string;
  /** About a bound that is missed, on the time per token or to the first one: its advice comes first. */
  of_bound?: string;
}

export interface RuleBook {
  symptoms: { large_prefill: number; settings: Record<string, readonly string[]> };
  ratios: Record<string, readonly string[]>;
  /** Conditions that are of the engine: of a part of a run they are what they are of the whole. */
  engine: readonly string[];
  /** Any of the lists, all that is in it. */
  conditions: Record<string, readonly (readonly Condition[])[]>;
  frame: { before: Sentence; after: Sentence; whole: Sentence; token: Sentence; first: Sentence };
  rules: readonly Rule[];
}
