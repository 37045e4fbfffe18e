help traffic
