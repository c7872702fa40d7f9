"""What everything in analysis speaks: findings, limits, errors and their encoding."""
