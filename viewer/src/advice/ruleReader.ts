/** One rule read against the symptoms of one run: as src/tokenyard/explain/advice/rule_reader.py reads it. */

import { count, duration, fixed } from "../format";
import type { Comparison, Condition, Rule, RuleBook, Sentence } from "./rule";
import { type Held, type Symptoms, settingOf } from "./symptoms";

const FORMATS: Record<string, (value: number) => string> = {
  count,
  floor: (value) => count(Math.floor(value)),
  setting: (value) => count(value).replaceAll(",", ""),
  tenth: (value) => fixed(value, 1),
  percent: (value) => `${fixed(100 * value, 0)} %`,
  duration,
};

export class RuleReader {
  /** Of the rule's reasons, the one that cost most time. */
  private readonly reason: Held | null = null;

  constructor(
    private readonly book: RuleBook,
    private readonly rule: Rule,
    private readonly symptoms: Symptoms,
    /** Of the whole run, if these are of a part of it. */
    private readonly whole?: Symptoms,
  ) {
    for (const name of rule.reasons) {
      const held = Object.hasOwn(symptoms.reasons, name) ? symptoms.reasons[name] : null;
      if (held && (!this.reason || held.seconds > this.reason.seconds)) this.reason = held;
    }
  }

  applies(): boolean {
    return this.all(this.rule.when);
  }

  evidence(): string {
    const { did, evidence, then } = this.rule;
    const { before, after, whole, token, first } = this.book.frame;
    const shown = did.length > 0 ? [...before, ...did, ...after] : evidence;
    const bound =
      this.rule.of_bound === undefined ? [] : [...whole, ...(this.rule.of_bound === "token" ? token : first)];
    return this.text([...bound, ...shown, ...then]);
  }

  /** Request-seconds; null if that is not what it costs. */
  lost(): number | null {
    const lost = this.number("reason.seconds");
    const share = this.rule.lost_share;
    return lost === null || share === undefined ? lost : lost * (this.number(share) ?? 0);
  }

  /** How the value to set follows; empty where there is none. */
  basis(): string {
    return this.target() === null ? "" : this.text(this.rule.then).trim();
  }

  /** The value to set, or words with it; null if there is none, or if the setting is there already. */
  target(): number | string | null {
    const { target, direction, setting } = this.rule;
    const number = target ? this.number(target.value) : null;
    const factor = target?.times ?? 1;
    const times = typeof factor === "string" ? this.number(factor) : factor;
    if (!target || number === null || times === null) return null;
    const bound = target.at_most === undefined ? null : this.number(target.at_most);
    const to = Math.floor(times * (bound === null ? number : Math.min(number, bound)));
    const now = this.number(`setting.${setting}`);
    const isOff = direction === "set" && now === 0;
    const there = now !== null && !isOff && (direction === "up" ? to <= now : to >= now);
    const enough = target.above !== undefined && !(to > (this.number(target.above) ?? 0));
    if (there || to < 1 || enough) return null;
    return target.words === undefined ? to : target.words.replace("{}", count(to));
  }

  /** What a name stands for; null if the trace does not record it. */
  private value(name: string): unknown {
    if (Object.hasOwn(this.book.ratios, name)) {
      const [above, below] = this.book.ratios[name].map((each) => this.number(each));
      return above !== null && below ? above / below : null;
    }
    const [first, ...rest] = name.split(".");
    if (first === "setting") return settingOf(this.symptoms, rest.join("."));
    if (first === "lost") {
      const name = rest.join(".");
      return Object.hasOwn(this.symptoms.reasons, name) ? this.symptoms.reasons[name].seconds : 0;
    }
    const symptoms = this.symptoms as unknown as Record<string, unknown>;
    let value: unknown = first === "reason" ? this.reason : symptoms[camel(first)];
    for (const part of rest) value = (value as Record<string, unknown> | null)?.[camel(part)] ?? null;
    return value;
  }

  private number(name: string): number | null {
    const value = this.value(name);
    return typeof value === "number" ? value : null;
  }

  private all(conditions: readonly Condition[]): boolean {
    return conditions.every((condition) => this.holds(condition));
  }

  private holds(condition: Condition): boolean {
    if (typeof condition !== "string") return this.compare(condition);
    const name = condition.replace(/^not /, "");
    if (this.whole && this.book.engine.includes(name)) {
      return new RuleReader(this.book, this.rule, this.whole).holds(condition);
    }
    return this.book.conditions[name].some((each) => this.all(each)) === (name === condition);
  }

  private compare(comparison: Comparison): boolean {
    const { value, at_least, above, below, times } = comparison;
    if (comparison.is !== undefined) return this.value(value) === comparison.is;
    if (comparison.is_not !== undefined) return this.value(value) !== comparison.is_not;
    const number = this.number(value);
    if (number === null) return false;
    const factor = times === undefined ? 1 : (this.number(times) ?? 0);
    if (at_least !== undefined && !(number >= at_least * factor)) return false;
    if (above !== undefined && !(number > above * factor)) return false;
    return below === undefined || number < below * factor;
  }

  private text(sentence: Sentence): string {
    return sentence.map((part) => (typeof part === "string" ? this.say(part) : this.sayWhen(part))).join("");
  }

  private sayWhen(part: { text: string; when: readonly Condition[] }): string {
    return this.all(part.when) ? this.say(part.text) : "";
  }

  /** The part with its numbers; nothing if one is missing. */
  private say(part: string): string {
    let known = true;
    const said = part.replace(/\{([\w.]+):(\w+)\}/g, (_, name: string, format: string) => {
      const shown = this.shown(name, format);
      known &&= shown !== null;
      return shown ?? "";
    });
    return known ? said : "";
  }

  /** A number or a name, as text; null if it is missing. */
  private shown(name: string, format: string): string | null {
    if (format === "name") {
      const text = this.value(name);
      return typeof text === "string" ? text : null;
    }
    const number = this.number(name);
    return number === null ? null : FORMATS[format](number);
  }
}

/** Names are Python's in the rules. */
function camel(name: string): string {
  return name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
}
