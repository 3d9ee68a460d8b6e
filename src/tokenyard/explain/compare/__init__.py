"""Two traces side by side: how their figures differ, and where they part."""
