import type { ReasonFamily } from "../data/model/reasons";
import { useRoving } from "./roving";
import { Swatch } from "./Swatch";
import "./charts.css";

export interface BarRow {
  key: string;
  label: string;
  family: ReasonFamily;
  /** Length of the bar, 0 .. 1. */
  share: number;
  /** Figures beside the bar, right-aligned, one per column. */
  figures: string[];
  /** One sentence. */
  meaning?: string;
  onClick?(): void;
}

interface BarListProps {
  label: string;
  /** Heads of the columns of figures. */
  columns: string[];
  rows: BarRow[];
}

/** A table whose first column is a bar; a row that leads somewhere is a button. */
export function BarList({ label, columns, rows }: BarListProps) {
  const roving = useRoving(rows.length);
  return (
    <table class="bar-list" aria-label={label} onKeyDown={roving.onKeyDown}>
      <thead>
        <tr>
          <th scope="col">
            <span class="hidden-text">name</span>
          </th>
          <th scope="col" class="bar-list-bar">
            <span class="hidden-text">share</span>
          </th>
          {columns.map((column) => (
            <th key={column} scope="col" class="number">
              {column}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row, index) => (
          <tr key={row.key} class={row.share > 0 ? "" : "nothing"} title={row.meaning}>
            <th scope="row">
              <button
                type="button"
                ref={roving.ref(index)}
                tabIndex={roving.tabIndex(index)}
                onFocus={() => roving.onFocus(index)}
                aria-disabled={row.onClick === undefined || row.share <= 0}
                onClick={() => row.share > 0 && row.onClick?.()}
              >
                <Swatch family={row.family} />
                <span class="bar-list-name">{row.label}</span>
              </button>
              {row.meaning && <small>{row.meaning}</small>}
            </th>
            <td class="bar-list-bar" aria-hidden="true">
              <span
                style={{
                  width: row.share > 0 ? `max(2px, ${100 * row.share}%)` : "0",
                  background: `var(--family-${row.family})`,
                }}
              />
            </td>
            {row.figures.map((figure, column) => (
              <td key={columns[column]} class="number">
                {figure}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
