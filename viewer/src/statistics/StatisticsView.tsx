/** The Statistics tab. */

export function StatisticsView() {
  return <p class="quiet">This view is not built yet.</p>;
}
