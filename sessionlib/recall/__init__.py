"""Recall: the search over everything that ever left a session's window.

`passages` cuts entries into what is ranked, `terms` says which words a text holds, `postings` keeps where they occur
(built when a chunk is archived, merged as an LSM tree), `ranking` scores passages with BM25, `search` answers a query.
"""
