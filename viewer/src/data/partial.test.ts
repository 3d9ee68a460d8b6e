import { expect, test } from "vitest";
import { header } from "./header";
import { partial } from "./partial";
import { snapshot, storeFrom } from "./sampleStore";

const start = (more: object = {}) => JSON.stringify({ event: "trace_start", ts: 0, ...more });
const arrived = (id: string) => JSON.stringify({ event: "request_arrived", step: 0, ts: 1, req_id: id });
const finished = (id: string) => JSON.stringify({ event: "request_finished", step: 1, ts: 9, req_id: id });
const whole = [start(), arrived("a"), snapshot(0, [], ["a"]), snapshot(1, ["a"], []), finished("a")];

test("a whole trace shows no sign of ending too early", async () => {
  const store = await storeFrom(whole);
  expect(partial(store)).toBe(null);
  expect(header(store).some(({ kind }) => kind === "partial")).toBe(false);
});

test("the header says what is missing, in the words of the report", async () => {
  const store = await storeFrom([...whole.slice(0, -1), arrived("b"), '{"event":"step_snap']);
  expect(header(store).find(({ kind }) => kind === "partial")).toMatchObject({
    text: "partial",
    title:
      "This trace is partial: its last line is cut off, and 2 of 2 requests had not ended when it did. " +
      "What wrote it was interrupted, or still writes.",
  });
  store.stage = "following";
  expect(partial(store)).toBe(null);
});

test("a step limit is no interruption", async () => {
  const limited = await storeFrom([start({ max_steps: 2 }), ...whole.slice(1)]);
  expect(partial(limited)).toBe("This trace is partial: it ends at its step limit.");
  expect(partial(await storeFrom([start({ max_steps: 3 }), ...whole.slice(1)]))).toBe(null);
});
