"""How a session's history ages: what stays verbatim, what is consolidated, what is merged again."""
