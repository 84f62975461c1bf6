"""The published measurements that the planner (bert/plan) was fitted to, the fit, and its errors."""
