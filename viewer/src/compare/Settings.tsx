import type { Comparison, SettingDifference } from "../data/model/comparison";
import type { TraceStore } from "../data/model/trace";
import { cut } from "../text";
import { SideHead } from "./SideHead";

/** Characters of a name. */
const LONGEST_NAME = 80;

interface SettingsProps {
  a: TraceStore;
  b: TraceStore;
  settings: Comparison["settings"];
}

/** The settings in which the two runs differ, as their headers have them. */
export function Settings({ a, b, settings }: SettingsProps) {
  if (!settings) return <p class="quiet">Settings: not every trace tells them, for want of a header (trace_start).</p>;
  if (settings.length === 0) return <p>All settings that the headers tell are the same.</p>;
  const differing = settings.filter((setting) => setting.a !== null && setting.b !== null);
  const oneSided = settings.filter((setting) => !differing.includes(setting));
  return (
    <section aria-labelledby="settings-title">
      <h3 id="settings-title">Settings that differ</h3>
      {differing.length === 0 ? (
        <p>All settings that both headers tell are the same.</p>
      ) : (
        <table class="numbers settings">
          <thead>
            <tr>
              <th scope="col">setting</th>
              <SideHead a={a} b={b} side="A" />
              <SideHead a={a} b={b} side="B" />
            </tr>
          </thead>
          <tbody>
            {differing.map((setting) => (
              <tr key={setting.name}>
                <th scope="row" class="id">
                  {cut(setting.name, LONGEST_NAME)}
                </th>
                <Value value={setting.a} />
                <Value value={setting.b} />
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <OneSided settings={oneSided} />
    </section>
  );
}

/** What only one header has may be the other's default: it is no known difference. */
function OneSided({ settings }: { settings: readonly SettingDifference[] }) {
  if (settings.length === 0) return null;
  return (
    <p class="quiet one-sided">
      Told by one of the two only, so perhaps the same:{" "}
      {settings.map(({ name, a, b }, at) => (
        <span key={name} title={cut(a ?? b ?? "")}>
          {at > 0 && ", "}
          <span class="id">
            {cut(name, LONGEST_NAME)} {cut(a ?? b ?? "", LONGEST_NAME)}
          </span>{" "}
          (in {a === null ? "B" : "A"})
        </span>
      ))}
      .
    </p>
  );
}

/** Whole, unless it is as long as a book. */
function Value({ value }: { value: string | null }) {
  return <td class="id">{cut(value ?? "")}</td>;
}
