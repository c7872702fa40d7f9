"""What did a load test measure, run by run, and up to which load does it hold?"""
