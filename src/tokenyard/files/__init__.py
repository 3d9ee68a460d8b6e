"""Input files: how they are opened, what they may hold, and their lines. Whatever reads one goes through here."""
