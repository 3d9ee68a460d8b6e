/** The page: landing page or trace, the frame around the tabs, and the keys. */

import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { CompareView } from "../compare/CompareView";
import type { TraceStore } from "../data/model/trace";
import { OverviewView } from "../overview/OverviewView";
import { RequestsView } from "../requests/RequestsView";
import { TAB_TITLES, type Tab } from "../state/hash";
import { type Action, actionOf } from "../state/keyboard";
import { announcement, failure, tab, trace } from "../state/store";
import { StatisticsView } from "../statistics/StatisticsView";
import { cut } from "../text";
import { HiddenStep } from "../timeline/RangeBar";
import { Timeline } from "../timeline/Timeline";
import { hovering } from "./DropCard";
import { FailureCard } from "./FailureCard";
import { FilterNote } from "./FilterNote";
import { Guarded } from "./Guarded";
import { Header } from "./Header";
import { Help, helpOpen } from "./Help";
import { useKeptScroll } from "./keptScroll";
import { keyMoves } from "./keyMoves";
import { Landing } from "./Landing";
import { Legend } from "./Legend";
import { Minimap } from "./Minimap";
import { Notes } from "./Notes";
import { pageScroller, scrollPage, targetOf } from "./pageKeys";
import { SidePanel } from "./SidePanel";
import { Toolbar } from "./Toolbar";
import "./frame.css";
import "./minimap.css";
import "./toolbar.css";
import "./side.css";
import "./landing.css";
import "./help.css";
import "./touch.css";

const VIEWS: Record<Tab, () => preact.JSX.Element | null> = {
  overview: () => <OverviewView />,
  timeline: () => <Timeline />,
  requests: () => <RequestsView />,
  statistics: () => <StatisticsView />,
  compare: () => <CompareView />,
};

export function App() {
  const store = trace.value;
  const title = store ? `${cut(store.name, 60)} · ${TAB_TITLES[tab.value]} · Tokenyard` : "Tokenyard viewer";
  useLayoutEffect(() => {
    document.title = title;
  }, [title]);
  return (
    <>
      {store ? <Run key={store.key} store={store} title={title} /> : <Landing />}
      {hovering.value && <p class="drop-hint">Let go to open it{store && tab.value === "compare" ? " beside" : ""}</p>}
      {helpOpen.value && <Help />}
      <p class="announcement" role="status" aria-live="polite">
        {announcement.value && cut(announcement.value, 300)}
      </p>
    </>
  );
}

function Run({ store, title }: { store: TraceStore; title: string }) {
  const filterField = useRef<HTMLInputElement>(null);
  const goToField = useRef<HTMLInputElement>(null);
  useKeptScroll(`${store.key} ${tab.value}`);
  useEffect(() => {
    const special: Partial<Record<Action, () => void>> = {
      filter: () => filterField.current?.select(),
      "go-to": () => goToField.current?.select(),
      help: () => {
        helpOpen.value = true;
      },
    };
    const onKey = (event: KeyboardEvent) => {
      if (helpOpen.peek() || event.defaultPrevented) return;
      const page = pageScroller();
      const target = targetOf(event.target);
      const action = actionOf(event, { ...target, ownArrows: target.ownArrows || page !== null });
      if (!action) {
        // Inside the page and in controls the browser knows what to do.
        const outside = !target.typing && !target.ownArrows && !page?.contains(event.target as Node);
        if (page && outside && scrollPage(page, event)) event.preventDefault();
        return;
      }
      if (action === "back" && event.target instanceof HTMLInputElement) event.target.blur();
      else (special[action] ?? keyMoves[action])?.();
      event.preventDefault();
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, []);
  return (
    <div class="run">
      <Header store={store} title={title} />
      <section class="frame" aria-label="The run, and the tools">
        <Toolbar store={store} filterField={filterField} goToField={goToField} />
        <FilterNote />
        {failure.value && <FailureCard />}
        <Notes store={store} />
        {tab.value !== "overview" && (
          <Guarded what="the strip of the whole run">
            <Minimap />
            <Legend store={store}>{tab.value === "timeline" && <HiddenStep store={store} />}</Legend>
          </Guarded>
        )}
      </section>
      <div class="body">
        <main class="view">
          <div id="view" class="view" role="tabpanel" tabIndex={-1} aria-labelledby={`tab-${tab.value}`}>
            <Guarded key={tab.value} what={`the view ${TAB_TITLES[tab.value]}`}>
              {VIEWS[tab.value]()}
            </Guarded>
          </div>
        </main>
        <Guarded what="what is selected">
          <SidePanel store={store} />
        </Guarded>
      </div>
    </div>
  );
}
