import type { Comparison, SettingDifference } from "../data/model/comparison";
import { cut, plain } from "../text";

/** Characters of a value, and how many of them stand before the difference. */
const LONGEST = 80;
const BEFORE = 30;

/** The settings in which the two runs differ, as their headers tell them. */
export function Settings({ settings }: { settings: Comparison["settings"] }) {
  if (!settings) return <p class="quiet">Settings: not every trace tells them, for want of a header (trace_start).</p>;
  if (settings.length === 0) return <p>All settings that the headers tell are the same.</p>;
  return (
    <section aria-labelledby="settings-title">
      <h3 id="settings-title">Settings that differ</h3>
      <table class="numbers settings">
        <thead>
          <tr>
            <th scope="col">setting</th>
            <th scope="col">A</th>
            <th scope="col">B</th>
          </tr>
        </thead>
        <tbody>
          {settings.map((setting) => (
            <tr key={setting.name}>
              <th scope="row" class="id">
                {cut(setting.name, LONGEST)}
              </th>
              <Value setting={setting} side="a" />
              <Value setting={setting} side="b" />
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** Of a long value the part about the first character that is not the same. */
function Value({ setting, side }: { setting: SettingDifference; side: "a" | "b" }) {
  const value = setting[side];
  if (value === null) return <td class="quiet">not told</td>;
  const theirs = setting[side === "a" ? "b" : "a"] ?? "";
  const long = Math.max(value.length, theirs.length) > LONGEST;
  let from = 0;
  while (long && from < value.length && value[from] === theirs[from]) from += 1;
  const start = Math.max(from - BEFORE, 0);
  return (
    <td class="id" title={cut(value)}>
      {start > 0 && "…"}
      {plain(value.slice(start, start + LONGEST))}
      {start + LONGEST < value.length && "…"}
    </td>
  );
}
