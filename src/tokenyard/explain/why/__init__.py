"""Why did this request wait? Its waits, each divided among the reasons that held it back."""
