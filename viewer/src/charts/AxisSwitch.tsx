/** By time or by step: for the strip, the lanes and the charts alike. */

import { axisKind, setAxis, timed } from "../state/axis";
import type { AxisKind } from "./axis";

export function AxisSwitch() {
  return (
    <label title="Strip, shares, lanes and charts by time, or by step as if each took as long">
      axis{" "}
      <select
        value={axisKind.value}
        disabled={!timed.value}
        onChange={(event) => setAxis(event.currentTarget.value as AxisKind)}
      >
        <option value="time">time</option>
        <option value="steps">steps</option>
      </select>
    </label>
  );
}
