"""Since when is the budget broken, and compared with what?"""
