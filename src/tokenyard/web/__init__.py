"""What there is to look at: folders, the traces in them, and what each says about itself."""
