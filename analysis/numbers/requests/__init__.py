"""Which requests are stored, and what happened in one of them?"""
