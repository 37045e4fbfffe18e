repaly
