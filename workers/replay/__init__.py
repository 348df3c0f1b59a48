"""Replay: a recorded session played through real workers, and what became of the promises on the way.

`stage` starts the parts (server, fake provider, workers) and stops them; `driver` feeds the turns and kills workers;
`observed` holds what was seen; `breaks`, `history` and `waits` are pure findings from it; `report` puts them together.
"""
