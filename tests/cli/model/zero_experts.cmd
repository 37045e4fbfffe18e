model longcat-flash
