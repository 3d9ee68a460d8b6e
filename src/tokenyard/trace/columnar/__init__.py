"""The columnar twin of a trace: one Parquet file per file of JSON lines, from which its records come back."""
