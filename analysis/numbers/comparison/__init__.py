"""What differs between two windows, or between slow requests and others?"""
