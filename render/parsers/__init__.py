"""Reasoning and tool calls in the text of an answer, parsed as it comes.

Text goes in with a *mark* in place of each delimiter: one lone surrogate, which no
decoded text contains. Events come out: reasoning, content, whole calls.
"""
