/**
 * What hyparquet brings for other files than ours: variants and geometry. The build puts this in their place
 * (vite.config.ts), which leaves room in the page for something that is used.
 */

const never = (): never => {
  throw new Error("this Parquet file holds columns that no trace has");
};

export const decodeVariantColumn = never;
export const wkbToGeojson = never;
export const markGeoColumns = (): void => undefined;
