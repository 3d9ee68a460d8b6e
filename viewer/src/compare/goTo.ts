/** From Compare to a step of either trace: B becomes the trace that the other tabs show. */

import type { RequestIndex, Row } from "../data/model/columns";
import { swapTraces } from "../state/loader";
import { focus, showTab } from "../state/moves";
import { announce } from "../state/store";

export type SideName = "A" | "B";

export const LOOK_TITLES: Record<SideName, string> = {
  A: "Look at it in the Timeline",
  B: "Swap A and B, and look at it in the Timeline",
};

export function lookAt(side: SideName, row: Row, request: RequestIndex = -1): void {
  if (side === "B") {
    swapTraces();
    announce("A and B are swapped: the trace in front was B");
  }
  focus(row, request);
  showTab("timeline");
}
