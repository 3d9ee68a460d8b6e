"""The answers in a terminal, from 80 columns up: what the command line prints, and what ``print`` shows of them."""
