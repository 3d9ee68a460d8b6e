/** The Requests tab. */

export function RequestsView() {
  return <p class="quiet">This view is not built yet.</p>;
}
