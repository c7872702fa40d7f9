"""Do the stored requests stand for all of them?"""
