"""Where replicas go, and which may leave: one view of the cluster in, one plan out. No database.

views      what a decision knows            filters    why a node cannot take a replica
plans      what a decision says             scores     which of those that can is best
wishes     a rule, read strictly            picking    the best node, without asking every one
board      who holds what, as the plan      evicting   room by unloading what may leave
           takes shape                      filling    replicas that are missing
standing   how a model is doing             trimming   replicas that are too many
deciding   plan(): all of it, in order      rolling    old replicas replaced while they serve
                                            swapping   replacements where the maximum is reached
                                            changes    "what if", as another view
"""
