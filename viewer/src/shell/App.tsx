/** The page: landing page or trace, the frame around the tabs, and the keys. */

import { CompareView } from "../compare/CompareView";
import { RequestsView } from "../requests/RequestsView";
import { TABS, type Tab } from "../state/hash";
import { showTab } from "../state/moves";
import { tab, trace } from "../state/store";
import { StatisticsView } from "../statistics/StatisticsView";

const VIEWS: Record<Tab, { title: string; view: () => preact.JSX.Element | null }> = {
  timeline: { title: "Timeline", view: () => null },
  requests: { title: "Requests", view: () => <RequestsView /> },
  statistics: { title: "Statistics", view: () => <StatisticsView /> },
  compare: { title: "Compare", view: () => <CompareView /> },
};

export function App() {
  if (!trace.value) {
    return (
      <main>
        <h1>Tokenyard viewer</h1>
        <p>
          Record a trace with <code>tokenyard run agentic --trace traces/agentic</code>, then drop its files here.
        </p>
      </main>
    );
  }
  return (
    <main>
      <div role="tablist">
        {TABS.map((name) => (
          <button type="button" role="tab" key={name} aria-selected={tab.value === name} onClick={() => showTab(name)}>
            {VIEWS[name].title}
          </button>
        ))}
      </div>
      <div role="tabpanel">{VIEWS[tab.value].view()}</div>
    </main>
  );
}
